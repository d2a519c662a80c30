// Each chart on the screen is made interactive when it comes into view; on paper, and where that fails, the still one is.
(() => {
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false };
  const draw = async (chart) => {
    const live = document.createElement("div");
    live.className = "live";
    live.setAttribute("aria-hidden", "true");
    const chartSpec = JSON.parse(chart.querySelector("script").textContent);
    if (chart.classList.contains("alone") && chart.clientWidth >= 640) chartSpec.width = 720;
    await vegaEmbed(live, chartSpec, options);
    chart.append(live);
    chart.classList.add("drawn");
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      seen.unobserve(entry.target);
      draw(entry.target).catch((error) => console.warn("a chart stays still:", error));
    }
  }, { rootMargin: "50%" });
  document.querySelectorAll(".chart").forEach((chart) => seen.observe(chart));
})();
