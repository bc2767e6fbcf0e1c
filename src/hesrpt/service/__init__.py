"""``hesrpt serve``: one queue for a machine or a cluster, with an HTTP API and a web page.

The scheduler is that of :mod:`hesrpt.scheduler`, in a thread of its own. Nothing here schedules
anything: the web layer writes requests to the journal, and shows what the scheduler does.
"""
