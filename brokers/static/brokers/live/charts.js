/* Charts people can read: a title and a unit, lines that differ in their dashes as well as in
   their colour, a legend with the values under the pointer, and the same figures as a table. */
(function () {
  "use strict";
  const DASHES = { solid: [], dashed: [9, 5], dotted: [2, 4], mixed: [10, 4, 2, 4] };
  const TABLE_ROWS = 30;
  const HEIGHT = 220;
  const ALONE_S = 600;

  function variable(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function sample(line) {
    const space = "http://www.w3.org/2000/svg";
    const picture = document.createElementNS(space, "svg");
    const stroke = document.createElementNS(space, "line");
    for (const [key, value] of [["width", 26], ["height", 10], ["aria-hidden", "true"]]) {
      picture.setAttribute(key, value);
    }
    const drawn = [["x1", 0], ["x2", 26], ["y1", 5], ["y2", 5], ["stroke-width", 2.5]];
    drawn.push(["stroke-dasharray", DASHES[line.dash].join(" ")], ["class", `stroke-${line.color}`]);
    for (const [key, value] of drawn) stroke.setAttribute(key, value);
    picture.append(stroke);
    return picture;
  }

  class Chart {
    /** `lines`: [{name, color, dash}], in the order of the columns that `show` is given. */
    constructor(place, { unit, lines, write }) {
      this.unit = unit;
      this.lines = lines;
      this.write = write;
      this.title = place.querySelector("h3").textContent;
      this.place = place.querySelector(".plot");
      this.legend = place.querySelector(".legend");
      this.table = place.querySelector("table");
      this.data = [[], ...lines.map(() => [])];
      this.values = [];
      for (const line of lines) {
        const value = element("span", { class: "value" }, "");
        this.values.push(value);
        this.legend.append(element("li", {}, sample(line), `${line.name} `, value));
      }
      place.querySelector("details").addEventListener("toggle", () => this.fillTable());
      this.details = place.querySelector("details");
      new ResizeObserver(() => this.resize()).observe(this.place);
      document.addEventListener("theme", () => this.draw());
      this.draw();
    }

    draw() {
      if (this.plot) this.plot.destroy();
      const axis = {
        stroke: variable("--muted"),
        grid: { stroke: variable("--grid"), width: 1 },
        ticks: { stroke: variable("--grid"), width: 1, size: 4 },
        font: "12px system-ui, sans-serif",
        labelFont: "12px system-ui, sans-serif",
      };
      const options = {
        width: this.width(),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
        padding: [null, 30, null, null],
        scales: {
          // One minute alone: what is around it, and not a moment that cannot be told apart.
          x: {
            range: (plot, low, high) =>
              low === null || low < high ? [low, high] : [low - ALONE_S, low + ALONE_S],
          },
          y: { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] },
        },
        axes: [
          { ...axis, space: 70, size: 30, values: (plot, at) => this.times(at) },
          {
            ...axis, label: this.unit, labelSize: 18, size: 58,
            values: (plot, at) => at.map((value) => this.short(value)),
          },
        ],
        series: [{}, ...this.lines.map((line) => ({
          label: line.name,
          stroke: variable(`--${line.color}`),
          dash: DASHES[line.dash],
          width: 2,
          points: { show: (plot) => plot.data[0].length < 3, size: 7 },
          spanGaps: false,
        }))],
        hooks: { setCursor: [(plot) => this.tellValues(plot.cursor.idx)] },
      };
      this.plot = new uPlot(options, this.data, this.place);
      this.plot.root.setAttribute("aria-hidden", "true");
    }

    times(at) {
      const near = at.length > 1 && at[1] - at[0] < 60;
      return at.map((second) => Figures.clock(second * 1000, near));
    }

    short(value) {
      if (value >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
      if (value >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
      return String(+(value < 0.1 ? value.toPrecision(2) : value.toFixed(2)));
    }

    width() {
      return Math.max(this.place.clientWidth, 200);
    }

    resize() {
      if (this.plot && this.plot.width !== this.width()) {
        this.plot.setSize({ width: this.width(), height: HEIGHT });
      }
    }

    /** Rows of [ms, value, value, ...]; null where a value is not known. */
    show(rows) {
      this.data = [rows.map((row) => row[0] / 1000)];
      this.lines.forEach((line, number) => this.data.push(rows.map((row) => row[number + 1])));
      this.plot.setData(this.data);
      this.tellValues(this.plot.cursor.idx);
      if (this.details.open) this.fillTable();
    }

    tellValues(index) {
      const last = this.data[0].length - 1;
      const at = index === null || index === undefined || index > last ? last : index;
      const told = this.lines.map((line, number) => {
        const value = at < 0 ? null : this.data[number + 1][at];
        const text = this.write(value);
        if (this.values[number].textContent !== text) this.values[number].textContent = text;
        return `${line.name} ${text}`;
      });
      if (at === last) this.place.setAttribute("aria-label", `${this.title}: ${told.join(", ")}`);
    }

    fillTable() {
      if (!this.details.open) return;
      const head = element("tr", {}, element("th", { scope: "col" }, "Time"));
      for (const line of this.lines) {
        head.append(element("th", { scope: "col", class: "number" }, line.name));
      }
      const rows = [];
      const last = this.data[0].length - 1;
      for (let at = last; at >= 0 && at > last - TABLE_ROWS; at -= 1) {
        const time = Figures.clock(this.data[0][at] * 1000, true);
        const row = element("tr", {}, element("th", { scope: "row" }, time));
        this.lines.forEach((line, number) => {
          row.append(element("td", { class: "number" }, this.write(this.data[number + 1][at])));
        });
        rows.push(row);
      }
      this.table.tHead.replaceChildren(head);
      this.table.tBodies[0].replaceChildren(...rows);
    }
  }

  window.Chart = Chart;
})();
