/* The page of a queue: its chart, and what htmx must not take for a section of it. */
(function () {
  "use strict";
  const AGAIN_MS = 15000;
  const place = document.getElementById("queue-chart");
  const reason = place.querySelector(".reason");
  const unknown = (value) => value === null || value === undefined;
  const chart = new Chart(place, {
    unit: "messages per second",
    lines: [
      { name: "pushed", color: "line-push", dash: "solid" },
      { name: "delivered", color: "line-pop", dash: "dashed" },
      { name: "acknowledged", color: "line-ack", dash: "dotted" },
      { name: "refused", color: "line-failed", dash: "mixed" },
    ],
    write: (value) => (unknown(value) ? Figures.UNKNOWN : `${Figures.rate(value)}/s`),
  });

  async function look() {
    try {
      const answer = await fetch(place.dataset.history, { redirect: "manual" });
      if (answer.type === "opaqueredirect") {
        location.reload();
        return;
      }
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.error || `the broker answers ${answer.status}`);
      chart.show(told.points);
      tell("");
    } catch (error) {
      chart.show([]);
      tell(`Unknown: ${error.message}`);
    }
    setTimeout(look, AGAIN_MS);
  }

  function tell(text) {
    reason.textContent = text;
    reason.hidden = !text;
  }

  // Who was signed out meanwhile is sent to the page for signing in, which is no section of ours;
  // what failed is told as failed beside what was read before.
  document.body.addEventListener("htmx:before:response", (event) => {
    const { ctx } = event.detail;
    const { raw, status } = ctx.response;
    if (raw.redirected) {
      event.preventDefault();
      location.reload();
    } else if (status >= 400) {
      event.preventDefault();
      notRead(ctx.target, `the broker answers ${status}`);
    }
  });
  document.body.addEventListener("htmx:error", (event) => {
    if (event.detail.ctx) notRead(event.detail.ctx.target, "the broker cannot be reached");
  });

  function notRead(target, reason) {
    if (!target) return;
    let told = target.querySelector(":scope > .not-read");
    if (!told) {
      told = document.createElement("p");
      told.className = "problem not-read";
      told.setAttribute("role", "alert");
      target.prepend(told);
    }
    const text = `This could not be read anew: ${reason}. What is shown is old.`;
    if (told.textContent !== text) told.textContent = text;
  }

  look();
})();
