/* Tables that change under the eyes of people: a row stays the row of its key, its cells are
   written only where they differ, and while the focus is in a table its rows stay where they are. */
(function () {
  "use strict";

  /** `columns`: functions of a row's data to text, or to {text, href, note, share, tone}. */
  function fill(body, rows, keyOf, columns, nothing) {
    const old = new Map([...body.rows].filter((row) => row.dataset.key !== undefined)
      .map((row) => [row.dataset.key, row]));
    const wanted = rows.map((data) => [keyOf(data), data]);
    const held = body.contains(document.activeElement);
    const made = [];
    for (const [key, data] of wanted) {
      let row = old.get(key);
      if (!row) {
        row = document.createElement("tr");
        row.dataset.key = key;
        columns.forEach((column, number) => {
          const cell = document.createElement(number ? "td" : "th");
          if (!number) cell.scope = "row";
          if (column.number) cell.className = "number";
          row.append(cell);
        });
      }
      old.delete(key);
      columns.forEach((column, number) => write(row.cells[number], column.of(data)));
      made.push(row);
    }
    for (const row of old.values()) {
      if (!row.contains(document.activeElement)) row.remove();
    }
    for (const row of [...body.rows]) if (row.dataset.key === undefined) row.remove();
    if (held) {
      for (const row of made) if (!row.parentNode) body.append(row);
    } else {
      made.forEach((row, number) => {
        if (body.rows[number] !== row) body.insertBefore(row, body.rows[number] || null);
      });
    }
    if (!made.length) body.append(message(columns.length, nothing));
  }

  function message(width, text) {
    const row = document.createElement("tr");
    const cell = document.createElement("td");
    cell.colSpan = width;
    cell.className = "nothing";
    cell.textContent = text;
    row.append(cell);
    return row;
  }

  function write(cell, told) {
    const { text, href, note, share, tone } = typeof told === "object" ? told : { text: told };
    let holder = cell;
    if (href !== undefined) {
      holder = cell.querySelector("a");
      if (!holder) {
        holder = document.createElement("a");
        cell.prepend(holder);
      }
      if (holder.getAttribute("href") !== href) holder.setAttribute("href", href);
    } else {
      holder = cell.querySelector(".text");
      if (!holder) {
        holder = document.createElement("span");
        holder.className = "text";
        cell.prepend(holder);
      }
    }
    if (holder.textContent !== text) holder.textContent = text;
    beside(cell, "note", note);
    if (share !== undefined) bar(cell, share);
    if (tone) cell.dataset.tone = tone;
    else delete cell.dataset.tone;
  }

  function beside(cell, name, text) {
    let holder = cell.querySelector(`.${name}`);
    if (!text) {
      if (holder) holder.remove();
      return;
    }
    if (!holder) {
      holder = document.createElement("span");
      holder.className = name;
      cell.append(holder);
    }
    if (holder.textContent !== text) holder.textContent = text;
  }

  function bar(cell, share) {
    let holder = cell.querySelector(".bar");
    if (!holder) {
      holder = document.createElement("span");
      holder.className = "bar";
      holder.setAttribute("aria-hidden", "true");
      cell.append(holder);
    }
    holder.style.setProperty("--share", String(Math.max(0, Math.min(share, 1))));
  }

  window.Tables = { fill };
})();
