/* How figures are written. Integers come as text and stay text: none goes through a float. */
(function () {
  "use strict";
  const UNKNOWN = "unknown";

  /** "9007199254740993" as 9,007,199,254,740,993, digit for digit. */
  function exact(digits) {
    if (digits === null || digits === undefined) return UNKNOWN;
    return String(digits).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  }

  /** A rate a second: as many digits as one can use. */
  function rate(value) {
    if (value === null || value === undefined) return UNKNOWN;
    if (value === 0) return "0";
    if (value < 10) return value.toFixed(1);
    return exact(String(Math.round(value)));
  }

  const SPANS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  /** Seconds as 3 d 4 h, 12 min 5 s, 4.2 s. */
  function span(seconds) {
    if (seconds === null || seconds === undefined) return UNKNOWN;
    const whole = Math.max(seconds, 0);
    if (whole < 1) return `${Math.round(whole * 1000)} ms`;
    if (whole < 10) return `${whole.toFixed(1)} s`;
    let left = Math.round(whole);
    const parts = [];
    for (const [size, name] of SPANS) {
      if (left >= size && parts.length < 2) {
        parts.push(`${Math.floor(left / size)} ${name}`);
        left %= size;
      } else if (parts.length) {
        break;
      }
    }
    return parts.join(" ");
  }

  const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

  /** Bytes, given as digits or a number. A size is for judging, so it is rounded. */
  function bytes(count) {
    if (count === null || count === undefined) return UNKNOWN;
    let size = Number(count);
    let unit = 0;
    while (size >= 1024 && unit < SIZES.length - 1) {
      size /= 1024;
      unit += 1;
    }
    return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${SIZES[unit]}`;
  }

  function percent(share) {
    if (share === null || share === undefined || Number.isNaN(share)) return UNKNOWN;
    return `${share < 10 ? share.toFixed(1) : Math.round(share)} %`;
  }

  function clock(ms, withSeconds) {
    const at = new Date(ms);
    const two = (number) => String(number).padStart(2, "0");
    const minutes = `${two(at.getHours())}:${two(at.getMinutes())}`;
    return withSeconds ? `${minutes}:${two(at.getSeconds())}` : minutes;
  }

  window.Figures = { UNKNOWN, exact, rate, span, bytes, percent, clock };
})();
