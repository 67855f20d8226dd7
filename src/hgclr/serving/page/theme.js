// The user's last choice of light or dark. This runs before the first paint, so that the page does not flash.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("hgclr-theme");
  } catch {
    // Without storage, the system's setting applies.
  }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => button.setAttribute("aria-pressed", String(dark()));
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try {
        localStorage.setItem("hgclr-theme", root.dataset.theme);
      } catch {
        // Without storage, the choice lasts until the page is left.
      }
      show();
    });
    system.addEventListener("change", show);
    show();
  });
})();
