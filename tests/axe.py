"""axe-core's rules for readers who do not see a page, or see little."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AXE = Path(os.environ.get("AXE_CORE") or ROOT / "node_modules" / "axe-core" / "axe.min.js")
RUN = """
const found = await axe.run(document, { resultTypes: ["violations"] });
return found.violations.filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.length} × ${one.nodes[0].html.slice(0, 120)}`);
"""


def serious_violations(tab, before=""):
    """Those of the page as it is in a tab, after a script."""
    if not AXE.exists():
        pytest.skip("no axe-core here: npm install axe-core")
    tab.run(f"{AXE.read_text('utf-8')}; window.axe = axe;")
    return tab.run(before + RUN)
