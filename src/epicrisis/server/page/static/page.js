// The page's own behaviour: the source dialog, the table, the history of this browser. Everything else is htmx or HTML.
"use strict";
(() => {
  const HISTORY = "epicrisis-history";
  const MOST = 200;
  const byId = (id) => document.getElementById(id);

  function readHistory() {
    try {
      const entries = JSON.parse(localStorage.getItem(HISTORY) || "[]");
      return Array.isArray(entries) ? entries : [];
    } catch {
      return [];
    }
  }

  function writeHistory(entries) {
    try {
      localStorage.setItem(HISTORY, JSON.stringify(entries.slice(0, MOST)));
    } catch {
      // A browser may refuse storage. The page works without it.
    }
  }

  function openAnswer(isNew) {
    const answer = document.querySelector("article.answer");
    if (!answer) return;
    const { answer: id, href, question } = answer.dataset;
    if (location.pathname !== href) history.replaceState(null, "", href);
    if (!("patient" in answer.dataset)) {
      const others = readHistory().filter((entry) => entry.id !== id);
      const known = readHistory().find((entry) => entry.id === id);
      writeHistory([known || { id, question, at: Date.now() }, ...others]);
    }
    prepareTable(byId("studies"));
    prepareTabs(document.querySelector("[data-tabs]"));
    if (isNew) {
      document.title = `${question} - epicrisis`;
      byId("asked")?.focus({ preventScroll: true });
      bringIntoSight(answer);
    }
  }

  // Scrolls only if the start is not on the screen, so that a reader of the first claims is not moved.
  function bringIntoSight(element) {
    const { top } = element.getBoundingClientRect();
    if (top < 0 || top > innerHeight * 0.6) element.scrollIntoView({ block: "start" });
  }

  // Without a script the tabs are links to sections below each other.
  function prepareTabs(tabs) {
    if (!tabs || tabs.dataset.ready) return;
    const links = [...tabs.querySelectorAll("a")];
    if (!links.length) return;
    tabs.dataset.ready = "true";
    const show = (chosen) => {
      for (const link of links) {
        if (link === chosen) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
        byId(link.hash.slice(1)).closest(".panel").hidden = link !== chosen;
      }
    };
    for (const link of links) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        show(link);
      });
    }
    show(links.find((link) => link.hash === location.hash) || links[0]);
  }

  function showLive(live) {
    // The form that was sent stays on the page until its stream ends: it folds.
    byId("answer").previousElementSibling?.removeAttribute("open");
    bringIntoSight(live);
    // The form of a follow-up question is hidden while it is answered.
    if (!document.activeElement?.checkVisibility() || document.activeElement === document.body) {
      byId("asked")?.focus({ preventScroll: true });
    }
  }

  function showSource() {
    const dialog = byId("source");
    // Closed first, so that its number has the focus again, and gets it back from the dialog.
    document.querySelector(".card:popover-open")?.hidePopover();
    if (!dialog.open) dialog.showModal();
    // The first of them: a place on a page of a PDF file is before the text.
    const mark = dialog.querySelector(".place, .text mark");
    if (mark) mark.scrollIntoView({ block: "center", inline: "center" });
    else dialog.scrollTop = 0;
  }

  function prepareTable(table) {
    if (!table || table.dataset.ready) return;
    table.dataset.ready = "true";
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, column) => { if (column) cell.dataset.name = names[column]; });
    }
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = cell.textContent;
      button.addEventListener("click", () => sortTable(table, cell, column));
      cell.replaceChildren(button);
    });
    const filter = byId("filter");
    filter.closest("[hidden]")?.removeAttribute("hidden");
    filter.addEventListener("input", () => filterTable(table, filter.value));
  }

  function sortTable(table, head, column) {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const key = (row) => row.cells[column].querySelector(".none") ? "" : row.cells[column].textContent.trim();
    const rows = [...table.tBodies[0].rows];
    // What is not stated comes last in both directions.
    rows.sort((one, two) => {
      const [first, second] = [key(one), key(two)];
      if (!first || !second) return (first ? 0 : 1) - (second ? 0 : 1);
      const order = first.replace(/(\d)[, \u00a0](?=\d{3})/g, "$1").localeCompare(second.replace(/(\d)[, \u00a0](?=\d{3})/g, "$1"), "en", { numeric: true });
      return ascending ? order : -order;
    });
    table.tBodies[0].append(...rows);
  }

  function filterTable(table, text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const content = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => content.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    byId("filter-count").textContent = words.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
  }

  function prepareKinds() {
    const select = byId("kind");
    if (!select) return;
    select.closest("[hidden]").hidden = false;
    select.addEventListener("change", () => {
      for (const note of document.querySelectorAll(".note")) note.hidden = Boolean(select.value) && note.dataset.kind !== select.value;
      for (const entry of document.querySelectorAll(".timeline > li")) entry.hidden = !entry.querySelector(".note:not([hidden])");
    });
  }

  function showHistory() {
    const list = byId("history");
    if (!list) return;
    const entries = readHistory();
    list.replaceChildren();
    for (const entry of entries) {
      if (!/^[A-Za-z0-9_-]{32}$/.test(entry.id)) continue;
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `/answers/${entry.id}`;
      link.textContent = String(entry.question);
      const time = document.createElement("time");
      time.textContent = new Date(entry.at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Remove";
      button.setAttribute("aria-label", `Remove: ${entry.question}`);
      button.addEventListener("click", () => {
        writeHistory(readHistory().filter((other) => other.id !== entry.id));
        showHistory();
      });
      item.append(link, button, time);
      list.append(item);
    }
    byId("history-empty").hidden = entries.length > 0;
    document.querySelector("[data-clear-history]").hidden = entries.length === 0;
  }

  const KEYS = "epicrisis-keys";
  const opened = Date.now();

  // The keys of a review. They can be turned off, as other programs may use the same.
  function prepareKeys() {
    const keys = byId("keys");
    if (!keys) return;
    try {
      keys.checked = localStorage.getItem(KEYS) !== "off";
    } catch {
      // Without storage they are on.
    }
    keys.closest("[data-keys]").hidden = false;
    keys.addEventListener("change", (event) => {
      event.stopPropagation();
      try {
        localStorage.setItem(KEYS, keys.checked ? "on" : "off");
      } catch {
        // It holds for this page then.
      }
    });
  }

  document.addEventListener("keydown", (event) => {
    if (!byId("keys")?.checked || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target instanceof Element && event.target.closest("textarea, select, input:not([type=radio], [type=checkbox])");
    // A key that is pressed twice by mistake must not judge the next question unseen.
    if (isTyping || Date.now() - opened < 400) return;
    const button = document.querySelector(`#verdict button[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
    if (!button) return;
    event.preventDefault();
    byId("verdict").requestSubmit(button);
  });
  document.addEventListener("htmx:after:swap", (event) => {
    const target = event.detail?.ctx?.target;
    if (target?.id === "source-body") showSource();
    else if (target?.id === "answer" && target.querySelector("article.answer")) openAnswer(true);
    else if (target?.id === "answer" && target.querySelector("[data-live]")) showLive(target.querySelector("[data-live]"));
  });
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (target?.closest("[data-print]")) window.print();
    if (target?.closest("[data-clear-history]")) { writeHistory([]); showHistory(); }
    if (target === byId("source")) byId("source").close();
  });
  document.addEventListener("submit", (event) => {
    const id = event.target.dataset?.forget;
    if (id) writeHistory(readHistory().filter((entry) => entry.id !== id));
  });
  document.addEventListener("DOMContentLoaded", () => { openAnswer(false); showHistory(); prepareKeys(); prepareKinds(); });
})();
