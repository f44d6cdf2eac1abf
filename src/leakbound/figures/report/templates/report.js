"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // Lists and planes that can be narrowed down.
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

  // What scrolls sideways can be reached by keyboard, what does not is no stop.
  const scrollers = () => {
    for (const box of all(".wide, nav ul")) {
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
  narrow(
    document.getElementById("plane-filters"),
    all("#planes .row"),
    (row, wanted) =>
      (!wanted.dataset || row.dataset.dataset === wanted.dataset) &&
      (!wanted.model || row.dataset.model === wanted.model),
    "settings",
  );

  // Numbers of the point that is pointed at or focused.
  const tip = document.getElementById("tip");
  let shown = null;
  const made = (tag, text) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const number = (value) => Number(value.toPrecision(4)).toString();
  const line = (table, head, values) => {
    const row = table.insertRow();
    row.append(made("th", head), ...values.map((value) => made("td", number(value))));
  };
  const show = (point) => {
    const facts = point.dataset;
    const plane = point.closest(".plane").dataset;
    const table = made("table");
    const head = table.insertRow();
    head.append(made("th"), made("th", plane.x), made("th", plane.y));
    line(table, "mean", JSON.parse(facts.means));
    for (const [replica, x, y] of JSON.parse(facts.seeds)) line(table, `seed ${replica}`, [x, y]);
    const level = facts.level ? `, level ${facts.level}` : "";
    tip.replaceChildren(made("strong", facts.defense + level), made("br"), made("code", facts.run), table);
    tip.hidden = false;
    place(point);
    if (shown) shown.removeAttribute("aria-describedby");
    point.setAttribute("aria-describedby", "tip");
    shown = point;
  };
  const place = (point) => {
    const mark = point.querySelector(".mark").getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const left = Math.min(mark.right + 10, document.documentElement.clientWidth - size.width - 8);
    const above = mark.bottom + 10 + size.height > window.innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, above ? mark.top - size.height - 10 : mark.bottom + 10)}px`;
  };
  const hide = () => {
    tip.hidden = true;
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
  };

  for (const plane of all(".plane")) {
    const points = all(".point", plane);
    const reach = (index) => {
      for (const [other, point] of points.entries()) point.setAttribute("tabindex", other === index ? "0" : "-1");
    };
    reach(0);
    for (const [index, point] of points.entries()) {
      point.querySelector("title").remove(); // the tip says more
      let touched = false;
      point.addEventListener("pointerenter", () => show(point));
      point.addEventListener("pointerleave", hide);
      point.addEventListener("blur", hide);
      point.addEventListener("focus", () => {
        reach(index);
        show(point);
      });
      // The first touch shows the numbers, the second follows the link.
      point.addEventListener("pointerdown", (event) => {
        touched = event.pointerType === "touch" && point !== document.activeElement;
      });
      point.addEventListener("click", (event) => {
        if (touched) {
          event.preventDefault();
          point.focus();
        }
        touched = false;
      });
      point.addEventListener("keydown", (event) => {
        const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
        let next = index + (steps[event.key] ?? 0);
        if (event.key === "Home") next = 0;
        if (event.key === "End") next = points.length - 1;
        if (event.key === "Escape") hide();
        if (next === index || !points[next]) return;
        event.preventDefault();
        points[next].focus();
      });
    }
  }
  window.addEventListener("scroll", () => shown && place(shown), { passive: true });
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
