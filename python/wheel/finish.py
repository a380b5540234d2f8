#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Finishes a wheel that auditwheel has repaired: licences and a list (SBOM) of everything that it bundles, and the
same bytes for the same sources, packages and tools.

    finish.py WHEEL FOLDER [--debs FOLDER --root FOLDER] [--refuse PATH ...]

writes the wheel into FOLDER. Bundled libraries are Debian's. The list is CycloneDX 1.6, in .dist-info/sboms (PEP
770). Texts come from /usr/share/doc, and from --root for the packages in --debs, which are of another architecture.
A library that _LIBRARIES does not list is an error, and so is a program or library that holds a path of --refuse.
"""

from __future__ import annotations

import argparse
import base64
import csv
import email
import hashlib
import importlib.metadata
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import zipfile
from typing import Any, NamedTuple
from urllib.parse import quote

from index_metadata import address


class Component(NamedTuple):
    """A part of the wheel: its name, its Debian package (or ""), and its SPDX expression."""

    name: str
    package: str
    license: str


_GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"
_LIBRARIES = {  # by the name of the file, without hash and version
    "libopenblasp-r0": Component("OpenBLAS", "libopenblas0-openmp", "BSD-3-Clause AND BSD-2-Clause-Views"),
    "libhwy": Component("Highway", "libhwy1", "Apache-2.0"),
    "libdnnl": Component("oneDNN", "libdnnl2", "Apache-2.0 AND BSD-3-Clause"),
    "libOpenCL": Component("OpenCL ICD loader", "ocl-icd-libopencl1", "BSD-2-Clause"),
    "libgomp": Component("libgomp", "libgomp1", _GCC),
    "libgfortran": Component("libgfortran", "libgfortran5", _GCC),
    "libquadmath": Component("libquadmath", "libquadmath0", "LGPL-2.1-or-later"),
    "libyaml-cpp": Component("yaml-cpp", "libyaml-cpp0.7", "MIT"),
}
_COMPILED_IN = {  # by the file of the wheel that contains it
    "logitless/_core": [
        Component("nanobind", "", "BSD-3-Clause"),
        Component("robin-map", "", "MIT"),
    ],
    "logitless/bin/logitless": [
        Component("CLI11", "libcli11-dev", "BSD-3-Clause"),
        Component("JSON for Modern C++", "nlohmann-json3-dev", "MIT"),
        Component("Eigen", "libeigen3-dev", "MPL-2.0"),
    ],
    "logitless.libs/libopenblasp-r0": [Component("LAPACK", "", "BSD-3-Clause-Open-MPI")],
}
_HERE = pathlib.Path(__file__).resolve().parent


class Packages:
    """Debian's packages: .deb files of another architecture, which are unpacked in `root`, and the installed
    ones."""

    def __init__(self, debs: pathlib.Path | None, root: pathlib.Path | None) -> None:
        self._root = root
        self._debs = {path.name.partition("_")[0]: path for path in sorted(debs.glob("*.deb"))} if debs else {}
        if debs and not self._debs:
            sys.exit(f"finish.py: {debs} has no .deb files")

    def purl_and_version(self, package: str) -> tuple[str, str]:
        shown = "--showformat=${Version} ${Architecture}"
        if package in self._debs:
            command = ["dpkg-deb", "--show", shown, os.fspath(self._debs[package])]
        else:
            command = ["dpkg-query", "--show", shown, package]
        version, architecture = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        return f"pkg:deb/debian/{package}@{quote(version, safe='.')}?arch={architecture}", version

    def text(self, package: str) -> tuple[str, bytes]:
        """The name of the folder with the package's copyright file, and this file. A folder may serve several."""
        root = self._root if package in self._debs and self._root else pathlib.Path("/")
        folder = root / "usr/share/doc" / package
        return folder.resolve().name, (folder / "copyright").read_bytes()


def _of_nanobind(component: Component) -> tuple[str, bytes]:
    """The version and the licence of nanobind, or of the robin-map in it."""
    nanobind = importlib.metadata.distribution("nanobind")
    [text] = [path for path in nanobind.files or [] if path.match("*.dist-info/licenses/LICENSE")]
    if component.name == "nanobind":
        return nanobind.version, text.locate().read_bytes()
    [header] = [path for path in nanobind.files or [] if path.name == "robin_map.h"]
    comment = header.locate().read_text(encoding="utf-8").partition("*/")[0]
    assert "Permission is hereby granted" in comment, header
    [growth] = [path for path in nanobind.files or [] if path.name == "robin_growth_policy.h"]
    number = re.findall(r"define TSL_RH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", growth.locate().read_text(encoding="utf-8"))
    return ".".join(number), re.sub(r"^ ?/?\*+ ?", "", comment, flags=re.MULTILINE).strip().encode() + b"\n"


def _components(files: dict[str, bytes]) -> list[tuple[Component, list[str]]]:
    """The components, and for each its files in the wheel, or the file that it is compiled into."""
    out = []
    for name in sorted(files):
        folder, _, library = name.partition("/")
        stem = re.sub(r"-[0-9a-f]{8}\..*", "", library) if folder == "logitless.libs" else ""
        if stem:
            if stem not in _LIBRARIES:
                sys.exit(f"finish.py: {name} is bundled, but _LIBRARIES has no {stem}: add its package and licence")
            out.append((_LIBRARIES[stem], [name]))
        for prefix, compiled_in in _COMPILED_IN.items():
            if name.startswith(prefix) and not name.endswith(".pyi"):
                out += [(component, [name]) for component in compiled_in]
    return out


def _describe(components: list[tuple[Component, list[str]]], files: dict[str, bytes], packages: Packages,
              version: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The list of components, and the texts of their licences by file name."""
    parts, texts = [], {}
    for component, names in components:
        part = {"type": "library", "bom-ref": component.name, "name": component.name}
        if component.package:
            part["purl"], part["version"] = packages.purl_and_version(component.package)
            folder, text = packages.text(component.package)
        elif component.name == "LAPACK":
            folder, text = "LAPACK", (_HERE / "LAPACK-license.txt").read_bytes()
        else:
            part["version"], text = _of_nanobind(component)
            part["purl"] = f"pkg:pypi/nanobind@{part['version']}" if component.name == "nanobind" else \
                f"pkg:github/Tessil/robin-map@v{part['version']}"
            folder = component.name
        texts[f"{folder}.txt"] = text
        part["licenses"] = [{"expression": component.license}]
        inside = names[0].startswith("logitless.libs/") and component in _LIBRARIES.values()
        part["properties"] = [{"name": "logitless:file" if inside else "logitless:compiled_into", "value": names[0]}]
        if inside:
            part["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(files[names[0]]).hexdigest()}]
        parts.append(part)
    # Debian's copyright files refer to common texts.
    references = {name.decode() for text in texts.values() for name in re.findall(rb"common-licenses/([\w.-]*\w)", text)}
    for name in references | {"MPL-2.0"}:
        path = pathlib.Path("/usr/share/common-licenses", name).resolve()  # GPL is GPL-3
        texts[f"{path.name}.txt"] = path.read_bytes()
    project: dict[str, Any] = {
        "type": "library", "bom-ref": "logitless", "name": "logitless", "version": version,
        "purl": f"pkg:pypi/logitless@{version}", "licenses": [{"expression": "Apache-2.0"}],
    }
    if address():
        project["externalReferences"] = [{"type": "vcs", "url": address()}]
    refs = sorted(part["bom-ref"] for part in parts)
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": project},
        "components": sorted(parts, key=lambda part: part["bom-ref"]),
        "dependencies": [{"ref": "logitless", "dependsOn": refs}, *({"ref": ref} for ref in refs)],
    }
    return bill, texts


def _record(files: dict[str, bytes], record: str) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", len(files[name])))
    writer.writerow((record, "", ""))
    return out.getvalue().encode()


def _write(path: pathlib.Path, files: dict[str, bytes], runs: set[str]) -> None:
    """A zip file with sorted names, one date and plain permissions. The metadata comes last (PEP 427)."""
    date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as out:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name.endswith("/RECORD"), name)):
            entry = zipfile.ZipInfo(name, date)
            entry.create_system = 3  # Unix: the permissions count
            entry.external_attr = (0o100755 if name in runs else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, files[name])
    partial.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--debs", type=pathlib.Path, help="a folder of .deb files of the bundled libraries")
    parser.add_argument("--root", type=pathlib.Path, help="the folder into which they are unpacked")
    parser.add_argument("--refuse", nargs="*", default=[], help="folders of this build, absolute")
    given = parser.parse_args()

    with zipfile.ZipFile(given.wheel) as wheel:
        entries = [entry for entry in wheel.infolist() if not entry.is_dir()]
        files = {entry.filename: wheel.read(entry) for entry in entries}
    runs = {entry.filename for entry in entries if entry.external_attr >> 16 & 0o100}
    [info] = {name.partition("/")[0] for name in files if name.partition("/")[0].endswith(".dist-info")}
    files = {name: data for name, data in files.items() if not name.startswith(f"{info}/sboms/")}  # auditwheel's
    del files[f"{info}/RECORD"]
    for name, data in files.items():
        for path in given.refuse:
            if data.startswith(b"\x7fELF") and f"{path}/".encode() in data:
                sys.exit(f"finish.py: {name} holds {path}/, a folder of this build")

    metadata = files[f"{info}/METADATA"]
    version = email.message_from_bytes(metadata)["Version"]
    bill, texts = _describe(_components(files), files, Packages(given.debs, given.root), version)
    files[f"{info}/sboms/logitless.cdx.json"] = json.dumps(bill, indent=1).encode() + b"\n"
    licenses = sorted(f"bundled/{name}" for name in texts)
    for name, text in texts.items():
        files[f"{info}/licenses/bundled/{name}"] = text
    head = b"License-File: LICENSE\n"
    assert metadata.count(head) == 1, metadata[:2000]
    lines = "".join(f"License-File: {name}\n" for name in licenses).encode()
    files[f"{info}/METADATA"] = metadata.replace(head, head + lines)
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")

    given.folder.mkdir(parents=True, exist_ok=True)
    _write(given.folder / given.wheel.name, files, runs)


if __name__ == "__main__":
    main()
