"use strict";
// Draws every figure from its own table when it comes into view, and offers the table as CSV. Nothing is fetched or kept.
(() => {
  const root = document.documentElement;
  // For tests, which have no console to look at.
  const trouble = (what) => {
    root.dataset.trouble = [root.dataset.trouble, what].filter(Boolean).join("; ");
  };
  addEventListener("error", (event) => trouble(event.message));
  addEventListener("unhandledrejection", (event) => trouble(String(event.reason)));
  document.addEventListener("securitypolicyviolation", (event) => trouble(`refused: ${event.violatedDirective}`));

  const rowsOf = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
  const csvOf = (table) => {
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
    const line = (row) => [...row.cells].map((cell) => quoted(cell.textContent)).join(",");
    return [...table.rows].map((row) => `${line(row)}\r\n`).join("");
  };

  const figures = [...document.querySelectorAll("figure[data-file]")].map((element) => ({
    element,
    place: element.querySelector(".plot"),
    table: element.querySelector("table"),
    spec: JSON.parse(element.querySelector("script").textContent),
    drawn: false,
  }));

  const download = (figure) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csvOf(figure.table)], { type: "text/csv" }));
    link.download = `${figure.element.dataset.file}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  for (const figure of figures) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "CSV";
    button.setAttribute("aria-label", `${figure.element.querySelector("figcaption b").textContent}: download as CSV`);
    button.addEventListener("click", () => download(figure));
    figure.element.querySelector("details").before(button);
  }

  const draw = (figure) => {
    if (figure.drawn) return;
    figure.drawn = true;
    figure.rows ??= rowsOf(figure.table);
    const width = figure.place.clientWidth;
    const { traces, layout } = Draw[figure.spec.kind](figure.spec, figure.rows, width);
    figure.place.style.height = `${layout.height}px`;
    const done = Plotly.react(figure.place, traces, { ...layout, width }, { displayModeBar: false });
    done.catch((error) => trouble(String(error)));
  };
  const drawAll = () => figures.forEach(draw);
  // Draws only what is in view: a long report has hundreds of pictures.
  const seen = new IntersectionObserver((entries) => {
    const shown = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
    figures.filter((figure) => shown.includes(figure.place)).forEach(draw);
  }, { rootMargin: "300px" });
  const drawAgain = () => {
    for (const figure of figures) {
      figure.drawn = false;
      seen.unobserve(figure.place);
      seen.observe(figure.place);
    }
  };

  // Colours are the style sheet's, widths the page's.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width === innerWidth || root.classList.contains("paper")) return;
    width = innerWidth;
    drawAgain();
  });
  // Paper is white, of a known width, and has all pictures.
  addEventListener("beforeprint", () => {
    root.classList.add("paper");
    drawAgain();
    drawAll();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("paper");
    drawAgain();
  });

  root.classList.add("drawn");
  figures.filter((figure) => figure.place.getBoundingClientRect().top < innerHeight).forEach(draw);
  figures.forEach((figure) => seen.observe(figure.place));
  // For those who keep the page as a picture: the fragment #all draws everything at once.
  if (location.hash === "#all") drawAll();
  // Milliseconds since the page was opened.
  root.dataset.ready = Math.round(performance.now());
})();
