"""DOT texts to read: the sample files, large ones, and random valid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from everstep.errors import DotError
from everstep.graph.draw.graphviz import quoted, spelled_id

FOLDER = Path(__file__).parent / "dot_files"
FILES = sorted(FOLDER.glob("*.dot"))

WORDS = ("a", "b", "c", "d", "Start", "exit", "über", "_x1")
IDS = (
    *WORDS,
    "1",
    "-2.5",
    ".5",
    '"two words"',
    '"say \\"hi\\""',
    '"back\\\\slash"',
    '"par" + "ts"',
    '"node"',
)


KEYS = ("title", "color", "weight", "shape", "x1")


def problems_of(error: DotError) -> list[dict[str, Any]]:
    """Return what an error lists."""
    found = error.details["problems"]
    assert isinstance(found, list)
    return found


def pipeline(count: int) -> str:
    """Return a pipeline of so many nodes, each with a prompt, and about as many edges."""
    lines = ["digraph big {", "  node [shape=box, timeout=900];", "  edge [weight=1];"]
    for i in range(count):
        lines.append(
            f'  n{i} [label="Node {i}", prompt="Do the step \\"{i}\\".\\nThen stop.", max_retries=2];'
        )
    for i in range(1, count):
        lines.append(f'  n{i - 1} -> n{i} [condition="outcome=success && context.step != {i}"];')
    return "\n".join([*lines, "}"])


blanks = st.sampled_from([" ", "\n", "\t", " // note\n", " /* two\nlines */ ", "\n# line\n"])
# Graphviz hides the names of nodes whose ids begin with a percent sign.
ids = st.sampled_from(IDS) | st.text(
    st.characters(codec="utf-8", exclude_characters="\\\0%"), min_size=1, max_size=6
).map(spelled_id)
values = ids | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).map(quoted)
keys = st.sampled_from(KEYS)


@st.composite
def attribute_lists(draw: st.DrawFn) -> str:
    found = draw(st.lists(st.tuples(keys, values, st.sampled_from([",", ";", " "])), max_size=3))
    return "[" + " ".join(f"{key}={value}{after}" for key, value, after in found) + "]"


maybe_attributes = st.just("") | attribute_lists()
refs = st.builds(lambda name, port: name + port, ids, st.sampled_from(["", "", "", ":p", ":n", ":p:sw"]))
node_lists = st.lists(refs, min_size=1, max_size=3).map(", ".join)
defaults = st.builds("{} {}".format, st.sampled_from(["node", "EDGE", "graph"]), attribute_lists())
settings = st.builds("{}={}".format, keys, values)
nodes = st.builds("{} {}".format, node_lists, maybe_attributes)


def bodies(statements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.lists(st.tuples(statements, st.sampled_from([";", "\n", " ; ", " "])), max_size=5)
    return joined.map(lambda found: "{" + " ".join(text + after for text, after in found) + "}")


def extended(statements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    heads = st.sampled_from(["", "", "subgraph ", "subgraph s ", "Subgraph cluster_1 "])
    subgraphs = st.builds("{}{}".format, heads, bodies(statements))
    ends = node_lists | subgraphs
    chains = st.lists(ends, min_size=2, max_size=4).map(" -> ".join)
    return subgraphs | st.builds("{} {}".format, chains, maybe_attributes)


statements = st.recursive(nodes | defaults | settings, extended, max_leaves=12)


@st.composite
def digraphs(draw: st.DrawFn) -> str:
    """A text that Graphviz accepts."""
    head = draw(
        st.sampled_from(["digraph", "digraph G", "strict digraph", 'DiGraph "my graph"', "digraph 12"])
    )
    return draw(blanks) + head + draw(blanks) + draw(bodies(statements)) + draw(blanks)
