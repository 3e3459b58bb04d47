"use strict";
(function () {
  const tip = document.getElementById("tip"), live = document.getElementById("live");
  const digits = v => v === 0 ? "0" : Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3 ? v.toExponential(2) : String(+v.toPrecision(4));
  function show(text, x, y) {
    tip.textContent = text; tip.hidden = false;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(4, Math.min(x + 12, room + window.scrollX)) + "px";
    tip.style.top = (y + 14) + "px";
  }
  const hide = () => { tip.hidden = true; };

  // ---- charts: nearest point under the pointer, arrow keys along a curve
  function points(svg) {
    const layer = [...svg.querySelectorAll(".layer")].find(l => l.style.display !== "none");
    const found = [];
    for (const group of layer.querySelectorAll(".series")) {
      if (group.style.display === "none") continue;
      const line = group.querySelector(".line");
      const which = line.dataset.k;
      const at = line.getAttribute("points").trim().split(" ").map(p => p.split(",").map(Number));
      const s = svg.gridpriv.series[+group.dataset.s];
      if (which === undefined) { at.forEach(p => found.push({ s, k: 0, x: p[0], y: p[1], group })); continue; }
      which.split(",").forEach((k, n) => found.push({ s, k: +k, x: at[n][0], y: at[n][1], group }));
    }
    return found;
  }
  function words(svg, p) {
    const d = svg.gridpriv, s = p.s;
    let text = s.name + ": " + digits(s.y[p.k]) + " " + d.unit;
    if (s.low && s.low[p.k] !== null) text += " (" + d.band + " " + digits(s.low[p.k]) + " to " + digits(s.high[p.k]) + ")";
    if (s.x.length) text += ", " + d.x + " " + digits(s.x[p.k]);
    return text;
  }
  function ring(svg, p) {
    let c = svg.querySelector(".ring");
    if (!p) { if (c) c.remove(); return; }
    if (!c) {
      c = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      c.setAttribute("class", "ring"); c.setAttribute("r", "7"); c.setAttribute("fill", "none");
      c.setAttribute("stroke", "#000"); c.setAttribute("stroke-width", "1.5"); svg.appendChild(c);
    }
    c.setAttribute("cx", p.x); c.setAttribute("cy", p.y);
  }
  function place(svg, p) {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const top = box.top - svg.viewBox.baseVal.y * scale;
    return [box.left + p.x * scale + window.scrollX, top + p.y * scale + window.scrollY];
  }
  for (const svg of document.querySelectorAll("svg.chart")) {
    svg.gridpriv = JSON.parse(document.getElementById("data-" + svg.id).textContent);
    svg.setAttribute("tabindex", "0");
    let at = -1;
    svg.addEventListener("pointermove", e => {
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const x = (e.clientX - box.left) * scale, y = (e.clientY - box.top) * scale + svg.viewBox.baseVal.y;
      let best = null, least = 900;
      for (const p of points(svg)) {
        const flat = p.s.x.length === 0;
        const d = flat ? (p.y - y) ** 2 * 4 + 60 : (p.x - x) ** 2 + (p.y - y) ** 2;
        if (d < least) { least = d; best = flat ? { ...p, x } : p; }
      }
      ring(svg, best);
      if (best) show(words(svg, best), e.pageX, e.pageY); else hide();
    });
    svg.addEventListener("pointerleave", () => { ring(svg, null); hide(); });
    svg.addEventListener("blur", () => { ring(svg, null); hide(); });
    svg.addEventListener("keydown", e => {
      const all = points(svg);
      if (!all.length) return;
      const curves = [...new Set(all.map(p => p.s))];
      const now = all[at] || all[0];
      if (e.key === "ArrowRight" || e.key === "ArrowLeft") {
        at = (at + (e.key === "ArrowRight" ? 1 : all.length - 1) + (at < 0 && e.key === "ArrowLeft" ? 1 : 0)) % all.length;
      } else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
        const step = e.key === "ArrowDown" ? 1 : curves.length - 1;
        at = all.findIndex(p => p.s === curves[(curves.indexOf(now.s) + step) % curves.length]);
      } else if (e.key === "Escape") { ring(svg, null); hide(); return; } else return;
      e.preventDefault();
      const p = all[at];
      ring(svg, p);
      const [x, y] = place(svg, p);
      show(words(svg, p), x, y);
      live.textContent = words(svg, p);
    });
  }
  for (const bus of document.querySelectorAll(".bus")) {
    bus.addEventListener("pointermove", e => show(bus.dataset.tip, e.pageX, e.pageY));
    bus.addEventListener("pointerleave", hide);
  }

  // ---- legend buttons hide a series in every chart; scale buttons switch the vertical axis
  for (const button of document.querySelectorAll("button[data-series]")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true", name = button.dataset.series;
      for (const b of document.querySelectorAll("button[data-series]")) {
        if (b.dataset.series === name) b.setAttribute("aria-pressed", String(on));
      }
      for (const svg of document.querySelectorAll("svg.chart")) {
        svg.gridpriv.series.forEach((s, n) => {
          if (s.name !== name) return;
          for (const g of svg.querySelectorAll('.series[data-s="' + n + '"]')) g.style.display = on ? "" : "none";
        });
        ring(svg, null);
      }
    });
  }
  for (const button of document.querySelectorAll("button[data-scale]")) {
    button.addEventListener("click", () => {
      const log = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(log));
      for (const svg of button.closest("section").querySelectorAll("svg.chart")) {
        const layers = svg.querySelectorAll(".layer");
        if (layers.length < 2) continue;
        for (const l of layers) l.style.display = l.classList.contains(log ? "log" : "linear") ? "" : "none";
        ring(svg, null);
      }
    });
  }

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
