"""Run the tutorials, write what each block prints below it, and keep the pictures they make.

python docs/_outputs.py [classification heart_rate icu ...]

So the figures on those pages come from a command, as all our figures do. Run it after a change that
moves them. Pages whose data are not on this machine are left as they are.
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
IMAGES = HERE / "images" / "tutorials"
# A Python block, and the output that an earlier run wrote below it.
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n.*?```\n)?", re.DOTALL)


def with_outputs(page: Path) -> str:
    """The text of the page with fresh outputs; its code runs in the current directory."""
    namespace: dict[str, object] = {}

    def run(found: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(found["code"], str(page), "exec"), namespace)
        shown = printed.getvalue().rstrip()
        below = f"\n```text\n{shown}\n```\n" if shown else ""
        return f"```python\n{found['code']}```\n{below}"

    return BLOCK.sub(run, page.read_text(encoding="utf-8"))


def main() -> None:
    """Write the pages that were named, or all."""
    import torch

    from roughformer.errors import MissingDataError

    torch.set_num_threads(1)  # the pages are small: more threads only wait for one another

    pages = sorted((HERE / "tutorials").glob("*.md"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help=", ".join(page.stem for page in pages))
    wanted = parser.parse_args().pages
    home = os.getcwd()
    for page in pages:
        if wanted and page.stem not in wanted:
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            try:
                text = with_outputs(page)
            except MissingDataError as error:
                print(f"{page.name}: left as it is. {error}")
                continue
            finally:
                os.chdir(home)
            IMAGES.mkdir(parents=True, exist_ok=True)
            for picture in Path(scratch).glob("*.png"):
                shutil.copyfile(picture, IMAGES / picture.name)
        page.write_text(text, encoding="utf-8")
        print(f"{page.name}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
