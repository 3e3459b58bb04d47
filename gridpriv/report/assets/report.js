"use strict";
(function () {
  // ---- legend buttons hide and show a series in every chart
  for (const button of document.querySelectorAll("button[data-series]")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true", series = button.dataset.series;
      for (const b of document.querySelectorAll('button[data-series="' + series + '"]')) b.setAttribute("aria-pressed", String(on));
      for (const g of document.querySelectorAll('.series[data-s="' + series + '"]')) g.style.display = on ? "" : "none";
    });
  }

  // ---- a printed page shows its appendices, as does a link to one
  const open = () => document.querySelectorAll("details").forEach(d => { d.open = true; });
  addEventListener("beforeprint", open);
  addEventListener("hashchange", open);

  // ---- tables: a header button sorts its column
  for (const head of document.querySelectorAll("th")) {
    const button = head.querySelector("button");
    if (!button) continue;
    button.addEventListener("click", () => {
      const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const numeric = head.classList.contains("n");
      const rows = [...body.rows].map((row, n) => [key(row), n, row]);
      rows.sort((a, b) => {
        if (a[0] === "" || b[0] === "") return (a[0] === "") - (b[0] === "") || a[1] - b[1];
        const d = numeric ? Number(a[0]) - Number(b[0]) : a[0].localeCompare(b[0], undefined, { numeric: true });
        return (up ? d : -d) || a[1] - b[1];
      });
      for (const row of rows) body.appendChild(row[2]);
    });
  }
  document.documentElement.dataset.ready = "yes";
})();
