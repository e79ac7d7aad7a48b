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
      { name: "failed", color: "line-failed", dash: "mixed" },
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

  // Who was signed out meanwhile is answered with the page for signing in.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    if (xhr.responseURL && !new URL(xhr.responseURL).searchParams.has("section")) {
      event.detail.shouldSwap = false;
      location.reload();
    }
  });
  // A section that did not come says so, and is asked for again.
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
    document.body.addEventListener(name, (event) => {
      const target = event.detail.target;
      let told = target.querySelector(":scope > .not-read");
      if (!told) {
        told = document.createElement("p");
        told.className = "problem not-read";
        told.setAttribute("role", "alert");
        target.prepend(told);
      }
      told.textContent = "This could not be read anew: the broker does not answer. What is shown is old.";
    });
  }
  look();
})();
