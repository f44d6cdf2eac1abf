"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // Lists that can be narrowed down.
  const narrow = (form, items, shows, noun) => {
    if (!form) return;
    form.hidden = false;
    const apply = () => {
      const wanted = Object.fromEntries(new FormData(form));
      let count = 0;
      for (const item of items) {
        item.hidden = !shows(item, wanted);
        count += !item.hidden;
      }
      form.querySelector("output").value = `${count} of ${items.length} ${noun}`;
      scrollers();
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  };

  // Only what scrolls sideways is a stop of the keyboard.
  const scrollers = () => {
    for (const box of all(".wide")) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };

  narrow(
    document.getElementById("claim-filters"),
    all("#claims tbody tr"),
    (row, wanted) =>
      (!wanted.paper || row.dataset.paper === wanted.paper) &&
      (!wanted.verdict || row.dataset.verdict === wanted.verdict) &&
      row.textContent.toLowerCase().includes(wanted.words.trim().toLowerCase()),
    "claims",
  );
  // Where there is no room at the side, the contents fold away once they have been used.
  const contents = document.getElementById("contents");
  const fold = () => { contents.open = matchMedia("(min-width: 70rem)").matches; };
  fold();
  for (const link of all("a", contents)) link.addEventListener("click", fold);
  contents.addEventListener("keydown", (event) => { if (event.key === "Escape") contents.open = false; });

  // A link to a figure opens what it is folded into.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let box = target?.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    target?.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  window.addEventListener("resize", scrollers);
  window.addEventListener("load", scrollers);
  for (const details of all("details")) details.addEventListener("toggle", scrollers);

  // Paper has no clicks.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    for (const details of closed) details.open = true;
    for (const image of all("img")) image.loading = "eager";
  });
  window.addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
  });
})();
