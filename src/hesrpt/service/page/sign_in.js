// Exchanges a token for the cookie of the page. The token is sent in a header, so that neither the
// address nor the history of the browser ever contains it.

const problem = document.getElementById("problem");
const token = document.getElementById("token");

// A wrong token in the address would be sent again with every reload.
if (location.search) history.replaceState(null, "", `./${location.hash}`);

document.getElementById("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.textContent = "";
  problem.textContent = await signIn(token.value.trim());
  if (problem.textContent === "") location.reload();
  else token.select();
});

/** Return why a token was refused, or "". */
async function signIn(text) {
  // Headers cannot carry other characters, and no token has them.
  if (!/^[!-~]+$/.test(text)) return "The token is wrong.";
  try {
    const answer = await fetch("sign-in", {
      method: "POST",
      headers: { Authorization: `Bearer ${text}` },
    });
    if (answer.ok) return "";
    return answer.status === 429
      ? "Too many wrong tokens. Wait a few seconds."
      : "The token is wrong.";
  } catch {
    return "The service does not answer. Is it still running?";
  }
}
