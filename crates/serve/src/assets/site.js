"use strict";
// Follows a run that is measuring, and nothing else: every page works without it.
(() => {
  const root = document.documentElement;
  const live = document.querySelector("[data-events]");
  if (live) {
    const source = new EventSource(live.dataset.events);
    source.addEventListener("state", (event) => {
      // The server writes this markup with the same care as the page.
      live.innerHTML = JSON.parse(event.data).html;
      root.dataset.states = Number(root.dataset.states ?? 0) + 1;
    });
    source.addEventListener("end", () => {
      source.close();
      location.reload();
    });
    addEventListener("pagehide", () => source.close());
  }
  // Two runs at least make a comparison.
  const form = document.querySelector("form[data-compare]");
  if (form) {
    const button = form.querySelector("button");
    const count = () => {
      button.disabled = form.querySelectorAll("input[name=run]:checked").length < 2;
    };
    form.addEventListener("change", count);
    addEventListener("pageshow", count);
    count();
  }
})();
