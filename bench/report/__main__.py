# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Makes a page from files that `logitless bench` and bench/peers wrote: each contender compared with dense or
with the fastest peer, curves over a swept key, a table and a picture per point, the machine and the command.
Without FILE it makes the generated parts of docs/benchmarks.md and of docs/benchmarks/ from bench/results. A
wrong line is refused with its file and number, and then nothing is written."""

import argparse
import base64
import html
import pathlib
import re
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "peers"))

from page import Pictures, make_docs, make_page, with_part  # noqa: E402
from runs import Broken, File, read_file  # noqa: E402

LIBRARIES = "bench/report needs matplotlib and markdown-it-py: pip install -r bench/report/requirements.txt, or " \
    "apt-get install python3-matplotlib python3-markdown-it"

STYLE = """\
body { margin: 0 auto; max-width: 76rem; padding: 1rem; font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
pre, table { overflow-x: auto; } table { display: block; border-collapse: collapse; font-size: .85rem; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid #ddd; } img { max-width: 100%; }"""


def read_files(paths: list[pathlib.Path]) -> list[File]:
    """Return a section name per file, with only characters that work in a link."""
    files: list[File] = []
    for path in paths:
        name = re.sub(r"[^a-z0-9-]+", "-", path.stem.lower())
        same = sum(file.name == name or file.name.startswith(name + "-no-") for file in files)
        files.append(read_file(path, f"{name}-no-{same + 1}" if same else name))
    return files


def as_html(text: str, pictures: dict[str, bytes]) -> str:
    """Return the page as one HTML file. Text from bench files is escaped: it cannot add markup or links."""
    from markdown_it import MarkdownIt

    def heading(renderer, tokens, number, options, env):
        tag, words = tokens[number].tag, tokens[number + 1].content
        return f'<{tag} id="{html.escape(words)}">' if tag == "h2" else f"<{tag}>"

    def image(renderer, tokens, number, options, env):
        data = base64.b64encode(pictures[tokens[number].attrs["src"]]).decode()
        return f'<img alt="{html.escape(tokens[number].content)}" src="data:image/svg+xml;base64,{data}">'

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("heading_open", heading)
    markdown.add_render_rule("image", image)
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>logitless benchmark</title>
<style>
{STYLE}
</style>
{markdown.render(text)}</html>
"""


def write_pictures(folder: pathlib.Path, pictures: dict[str, bytes]) -> None:
    """Write pictures into the folders of their files; delete other pictures there."""
    places = {folder / place: picture for place, picture in pictures.items()}
    for parent in {place.parent for place in places}:
        parent.mkdir(parents=True, exist_ok=True)
        for picture in parent.glob("*.svg"):
            picture.unlink()
    for place, picture in places.items():
        place.write_bytes(picture)


def write(output: pathlib.Path, text: str, pictures: dict[str, bytes]) -> None:
    """Write an HTML page, or a Markdown page with its pictures in a folder of its name."""
    if output.suffix == ".html":
        drawn = {f"{output.stem}/{place}": picture for place, picture in pictures.items()}
        text = as_html(text, drawn)
    else:
        write_pictures(output.with_suffix(""), pictures)
    output.write_text(text, encoding="utf-8")


def write_docs(docs: pathlib.Path, parts: dict[str, str], pictures: dict[str, bytes]) -> None:
    """Replace the generated parts of pages, and the pictures. Other text on a page is kept."""
    write_pictures(docs / "benchmarks", pictures)
    for name, part in parts.items():
        page = docs / name
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(with_part(text, page.stem, part), encoding="utf-8")


def draw(pictures: Pictures) -> dict[str, bytes]:
    import chart

    return {place: chart.svg(picture) for place, picture in pictures.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/report", description=__doc__)
    parser.add_argument("files", type=pathlib.Path, nargs="*", metavar="FILE",
                        help="JSON Lines of `logitless bench -o` or `bench/peers/run -o`")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="PAGE",
                        help="writes the page: .html is one file with its pictures, .md has them in a folder of its "
                        "name")
    options = parser.parse_args()
    docs = not options.files and not options.output
    if docs:
        options.files, options.output = sorted((ROOT / "bench" / "results").glob("*.jsonl")), ROOT / "docs"
    elif not options.files:
        parser.error("-o needs FILE arguments: name the files of the page")
    elif not options.output or options.output.suffix not in (".html", ".md"):
        parser.error("-o must name a page that ends in .html or .md")
    try:
        files = read_files(options.files)
        text, pictures = make_docs(files) if docs else make_page(files, options.output.stem)
        (write_docs if docs else write)(options.output, text, draw(pictures))
    except ImportError as error:
        print(f"bench/report: {error}. {LIBRARIES}", file=sys.stderr)
        return 2
    except (Broken, OSError) as error:
        print(f"bench/report: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}: files: {len(options.files)}, pictures: {len(pictures)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
