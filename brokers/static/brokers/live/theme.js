/* Light, dark, or what the system says: chosen here, kept where Django admin keeps it too, and put
   on the page before anything is painted. */
(function () {
  "use strict";
  const KEY = "theme";
  const THEMES = ["auto", "light", "dark"];

  function chosen() {
    let kept = null;
    try {
      kept = localStorage.getItem(KEY);
    } catch {
      // Storage can be forbidden; then it is what the system says.
    }
    return THEMES.includes(kept) ? kept : "auto";
  }

  function apply(theme) {
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("theme"));
  }

  apply(chosen());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(chosen()));
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    if (!select) return;
    select.value = chosen();
    select.addEventListener("change", () => {
      try {
        localStorage.setItem(KEY, select.value);
      } catch {
        // It holds for this page then.
      }
      apply(select.value);
    });
  });
})();
