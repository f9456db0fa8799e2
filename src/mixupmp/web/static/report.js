"use strict";
// Everything is in the page without this script; it sorts tables, moves the abstention threshold, folds sections on a
// phone, and opens what is folded before printing.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].textContent.trim().replace("−", "-");
      const number = (text) => (text === "–" ? -Infinity : Number.parseFloat(text));
      const body = table.tBodies[0];
      const numeric = head.classList.contains("number");
      const order = (a, b) => numeric ? number(value(a)) - number(value(b)) : value(a).localeCompare(value(b), undefined, { numeric: true });
      body.append(...[...body.rows].sort((a, b) => (down ? -order(a, b) : order(a, b))));
    });
  });
}

const abstain = document.querySelector(".abstain");
if (abstain) {
  abstain.hidden = false;
  const curves = JSON.parse(document.getElementById("rejection-data").textContent);
  const slider = abstain.querySelector("input");
  const list = abstain.querySelector("ul");
  const output = abstain.querySelector("output");
  const percent = (value) => `${(100 * value).toFixed(1)}%`;
  const update = () => {
    const least = Number(slider.value) / 1000;
    output.textContent = percent(least);
    list.replaceChildren(...curves.map((curve) => {
      const item = document.createElement("li");
      let last = -1;
      curve.threshold.forEach((value, place) => { if (value >= least) last = place; });
      item.textContent = last < 0
        ? `${curve.title} would answer hardly any row.`
        : `${curve.title} answers about ${percent(curve.coverage[last])} of the rows, and is right on ${percent(curve.accuracy[last])} of them.`;
      return item;
    }));
  };
  slider.addEventListener("input", update);
  update();
}

const sections = [...document.querySelectorAll("details.section")];
const openTarget = () => {
  const fold = location.hash && document.querySelector(location.hash)?.querySelector("details.section");
  if (fold) fold.open = true;
};
// On a phone the page would be twenty screens long: only its first section stays open.
if (matchMedia("(max-width: 560px)").matches) sections.slice(1).forEach((section) => { section.open = false; });
openTarget();
addEventListener("hashchange", openTarget);
for (const link of document.querySelectorAll("nav.contents a")) {
  link.addEventListener("click", () => { document.querySelector(link.hash).querySelector("details").open = true; });
}

let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details.section:not([open]), details.run-part:not([open])")];
  for (const part of folded) part.open = true;
});
addEventListener("afterprint", () => { for (const part of folded) part.open = false; });
