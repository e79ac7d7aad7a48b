// A form that acts is sent once, however often it is clicked; who comes back to it may send it again,
// and is then told by the broker if it was done before.
"use strict";

for (const form of document.querySelectorAll("form[data-once]")) {
  let sent = false;
  form.addEventListener("submit", (event) => {
    if (sent) event.preventDefault();
    sent = true;
  });
  window.addEventListener("pageshow", () => {
    sent = false;
  });
}
