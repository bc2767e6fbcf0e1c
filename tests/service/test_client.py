"""hesrpt.Client: files of jobs, and what it says if something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.served_queue import URL, ServedQueue

from hesrpt import Client, InputError
from hesrpt.service.client import ServiceError, UnreachableError


def test_files_of_jobs_are_submitted(served: ServedQueue, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.txt").write_text(name)
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nname = "copy"\ncwd = "in"\nitems = "*.txt"\ncommand = "cp {item} {stem}.out"\n'
        '[[job]]\nname = "count"\nitems = {range = [-1, 1]}\ncommand = "echo {item}"\n'
        'after = ["copy"]\n'
    )
    copy, count = served.client.submit(tmp_path / "jobs.toml")
    assert repr(copy) == f"<RemoteJob 'copy' of {URL}>"
    assert (copy.wait(60).state, count.wait(60).state) == ("done", "done")
    assert (tmp_path / "in" / "b.out").read_text() == "b"
    assert count.logs(0) == "-1\n"


def test_mistakes_are_explained(monkeypatch: pytest.MonkeyPatch, served: ServedQueue) -> None:
    monkeypatch.delenv("HESRPT_URL", raising=False)
    monkeypatch.delenv("HESRPT_TOKEN", raising=False)
    monkeypatch.delenv("HESRPT_STATE", raising=False)
    with pytest.raises(InputError, match="url is missing"):
        Client()
    with pytest.raises(InputError, match="token is missing"):
        Client("http://127.0.0.1:8642")
    with pytest.raises(InputError, match=r"must be like http://127\.0\.0\.1:8642"):
        Client("ftp://127.0.0.1", "t")
    with pytest.raises(UnreachableError, match=r"cannot reach http://127\.0\.0\.1:9"):
        Client("http://127.0.0.1:9/?token=t").jobs()
    with pytest.raises(ServiceError, match="there is no job 'nobody'"):
        served.client.info("nobody")
    with pytest.raises(TimeoutError):
        served.client.wait(served.add("sleep 60", name="endless"), timeout=0.1)
    served.client.cancel("endless")
    monkeypatch.setenv("HESRPT_URL", "http://127.0.0.1:1/?token=secret-of-the-url")
    assert repr(Client()) == "<Client of http://127.0.0.1:1>"
