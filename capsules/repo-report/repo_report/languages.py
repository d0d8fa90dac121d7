"""Name the language of a text file: by its name, its extension, else its `#!` line."""

from __future__ import annotations

import re

OTHER_TEXT = "Other text"
BINARY = "Binary"

_BY_EXTENSION = {
    "Ada": "adb ads",
    "Assembly": "asm s",
    "Astro": "astro",
    "Awk": "awk",
    "Batch": "bat cmd",
    "C": "c",
    "C/C++ header": "h hh hpp hxx",
    "C#": "cs csx",
    "C++": "cc cpp cxx c++ ipp tpp",
    "CMake": "cmake",
    "CSS": "css less sass scss styl",
    "CSV": "csv tsv",
    "CUDA": "cu cuh",
    "Clojure": "clj cljc cljs edn",
    "Cap'n Proto": "capnp",
    "Crystal": "cr",
    "Cython": "pxd pyx",
    "D": "d",
    "Dart": "dart",
    "Diff": "diff patch",
    "Elixir": "ex exs",
    "Elm": "elm",
    "Emacs Lisp": "el",
    "Erlang": "erl hrl",
    "F#": "fs fsi fsx",
    "Fish": "fish",
    "Fortran": "f f03 f08 f90 f95 for",
    "GLSL": "frag glsl vert wgsl",
    "Gleam": "gleam",
    "Go": "go",
    "GraphQL": "gql graphql",
    "Groovy": "gradle groovy",
    "HCL": "hcl nomad tf tfvars",
    "HTML": "htm html xhtml",
    "Haskell": "hs lhs",
    "INI": "cfg conf ini properties",
    "JSON": "geojson json json5 jsonc jsonl ndjson webmanifest",
    "Java": "java",
    "JavaScript": "cjs js jsx mjs",
    "Julia": "jl",
    "Jupyter notebook": "ipynb",
    "Kotlin": "kt kts",
    "Lisp": "cl lisp lsp",
    "Log": "log",
    "Lua": "lua",
    "Make": "mak mk",
    "Markdown": "markdown md mdx",
    "Nim": "nim nims",
    "Nix": "nix",
    "OCaml": "ml mli",
    "Objective-C": "m mm",
    "PHP": "php phtml",
    "Pascal": "dpr pas pp",
    "Perl": "pl pm t",
    "Plain text": "text txt",
    "PowerShell": "ps1 psd1 psm1",
    "Prolog": "pro",
    "Protocol Buffers": "proto",
    "Python": "py pyi pyw",
    "R": "r rmd",
    "Racket": "rkt",
    "Ruby": "erb gemspec rake rb ru",
    "Rust": "rs",
    "SQL": "sql",
    "SVG": "svg",
    "Scala": "sbt sc scala",
    "Scheme": "scm ss",
    "Shell": "bash bats ksh sh zsh",
    "Solidity": "sol",
    "Starlark": "bzl star",
    "Svelte": "svelte",
    "Swift": "swift",
    "TOML": "toml",
    "Tcl": "tcl",
    "TeX": "bib cls latex sty tex",
    "Thrift": "thrift",
    "TypeScript": "cts mts ts tsx",
    "VHDL": "vhd vhdl",
    "Verilog": "sv svh v vh",
    "Vim script": "vim",
    "Visual Basic": "bas vb vbs",
    "Vue": "vue",
    "WebAssembly text": "wat wit",
    "XML": "plist xml xsd xsl xslt",
    "YAML": "yaml yml",
    "Zig": "zig zon",
    "reStructuredText": "rst",
}
_BY_NAME = {
    "CMake": "cmakelists.txt",
    "Dockerfile": "containerfile dockerfile",
    "Git settings": ".gitattributes .gitignore .gitmodules .mailmap",
    "Go": "go.mod go.sum",
    "Groovy": "jenkinsfile",
    "INI": ".editorconfig .flake8 .npmrc .pylintrc",
    "JSON": ".babelrc .eslintrc .prettierrc composer.lock flake.lock pipfile.lock",
    "Just": "justfile",
    "Make": "gnumakefile makefile",
    "Ruby": "brewfile gemfile podfile rakefile vagrantfile",
    "Shell": ".bash_profile .bashrc .envrc .profile .zshrc pkgbuild",
    "Starlark": "build build.bazel tiltfile workspace",
    "TOML": "cargo.lock pipfile poetry.lock uv.lock",
    "Plain text": "authors changelog copying license licence notice readme",
}
_BY_INTERPRETER = {
    "ash": "Shell",
    "awk": "Awk",
    "bash": "Shell",
    "bun": "TypeScript",
    "dash": "Shell",
    "deno": "TypeScript",
    "fish": "Fish",
    "gawk": "Awk",
    "guile": "Scheme",
    "julia": "Julia",
    "ksh": "Shell",
    "lua": "Lua",
    "make": "Make",
    "node": "JavaScript",
    "nodejs": "JavaScript",
    "perl": "Perl",
    "php": "PHP",
    "pwsh": "PowerShell",
    "pypy": "Python",
    "python": "Python",
    "racket": "Racket",
    "rscript": "R",
    "ruby": "Ruby",
    "runhaskell": "Haskell",
    "sh": "Shell",
    "tclsh": "Tcl",
    "wish": "Tcl",
    "zsh": "Shell",
}
_MEDIA = frozenset(
    "aac avif bmp eot flac gif heic icns ico jpeg jpg m4a mkv mov mp3 mp4 oga ogg ogv opus otf pdf "
    "png psd svgz tga tif tiff ttc ttf wav webm webp woff woff2".split()
)


def _inverted(table: dict[str, str]) -> dict[str, str]:
    return {word: language for language, words in table.items() for word in words.split()}


_LANGUAGE_OF_EXTENSION = _inverted(_BY_EXTENSION)
_LANGUAGE_OF_NAME = _inverted(_BY_NAME)


def language_of(path: str, shebang: str) -> str:
    """Name the language of the text file *path* with the `#!` line *shebang* ("" for none)."""
    name = path.rpartition("/")[2].lower()
    return (
        _LANGUAGE_OF_NAME.get(name)
        or _LANGUAGE_OF_EXTENSION.get(extension_of(path))
        or _BY_INTERPRETER.get(_interpreter(shebang))
        # `Dockerfile.dev`, `Makefile.am`
        or _LANGUAGE_OF_NAME.get(name.partition(".")[0])
        or OTHER_TEXT
    )


def is_media(path: str) -> bool:
    """Tell whether *path* is named like an image, a font, sound, film or document."""
    return extension_of(path) in _MEDIA


def extension_of(path: str) -> str:
    """Return what follows the last dot, in lower case; a leading dot does not count."""
    stem, _, extension = path.rpartition("/")[2].rpartition(".")
    return extension.lower() if stem else ""


def _interpreter(shebang: str) -> str:
    """Find the program: `/usr/bin/env -S A=1 python3.11 -u` is python."""
    words = shebang.split()
    if words and words[0].endswith("/env"):
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    program = words[0].rpartition("/")[2] if words else ""
    return re.sub(r"[\d.]+$", "", program).lower()
