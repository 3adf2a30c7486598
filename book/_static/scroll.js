// What scrolls sideways can be reached by the keyboard, whenever it begins to: after formulas are set, after a resize.
(() => {
  const parts = ".cell_output .output, .cell_output .output > div, pre, .pst-scrollable-table-container, table, div.math";
  const reach = () => {
    for (const part of document.querySelectorAll(parts)) {
      const { overflowX, overflowY } = getComputedStyle(part);
      const scrolls =
        (part.scrollWidth > part.clientWidth && /auto|scroll/.test(overflowX)) ||
        (part.scrollHeight > part.clientHeight && /auto|scroll/.test(overflowY));
      if (scrolls && part.tabIndex < 0) part.tabIndex = 0; // the theme sets -1, and changes it late
    }
  };
  addEventListener("resize", () => requestAnimationFrame(reach));
  document.addEventListener("laid-out", reach); // tables.js has given parts another width
  document.addEventListener("toggle", reach, true); // what was folded has a width now
  addEventListener("load", () => {
    reach();
    const theme = new MutationObserver(reach); // what it finds at 0 stays, so it ends
    theme.observe(document.body, { attributes: true, attributeFilter: ["tabindex"], subtree: true });
    window.MathJax?.startup?.promise?.then(reach);
  });
})();
