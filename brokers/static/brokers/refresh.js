// Keeps a part of a page up to date: an element with data-refresh is filled anew from that
// address every data-refresh-ms, until what came says data-refresh-done; then the whole page is
// asked for once, since its buttons are those of another state now. A failure is shown as one.
"use strict";

for (const part of document.querySelectorAll("[data-refresh]")) {
  const every = Number(part.dataset.refreshMs) || 2000;
  const trouble = document.createElement("p");
  trouble.className = "errornote";
  trouble.setAttribute("role", "alert");

  const look = async () => {
    try {
      const answer = await fetch(part.dataset.refresh, {
        credentials: "same-origin",
        redirect: "error",
      });
      if (!answer.ok) throw new Error(`${answer.status}`);
      const text = await answer.text();
      trouble.remove();
      part.innerHTML = text;
      if (part.querySelector("[data-refresh-done]")) {
        window.location.reload();
        return;
      }
    } catch (error) {
      trouble.textContent = `This is not up to date: asking again failed (${error.message}).`;
      part.before(trouble);
    }
    window.setTimeout(look, every);
  };

  if (!part.querySelector("[data-refresh-done]")) window.setTimeout(look, every);
}
