// The list of contents marks the section that is read.

function startContents() {
  const links = [...document.querySelectorAll("nav a")];
  const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
  const mark = () => {
    const line = innerHeight * 0.3;
    const atEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
    const passed = sections.filter((section) => section.getBoundingClientRect().top <= line).length;
    const now = atEnd && scrollY > 0 ? sections.length - 1 : Math.max(passed - 1, 0);
    links.forEach((link, i) => {
      if (i !== now) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "true");
        const list = link.parentElement;
        if (list.scrollWidth > list.clientWidth) list.scrollLeft = link.offsetLeft - list.offsetLeft - list.clientWidth / 3;
      }
    });
  };
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      mark();
    });
  }, { passive: true });
  mark();
}
