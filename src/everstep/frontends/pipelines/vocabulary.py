"""The attributes that a pipeline can have, what each is read as, and which ones only Graphviz reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from everstep.frontends.dot.attributes import Attributes
from everstep.frontends.pipelines.fidelity import MODES

Reads = Literal["text", "integer", "number", "flag", "duration", "word", "node"]


class AttributeRule(NamedTuple):
    """What an attribute holds."""

    reads: Reads = "text"
    """A `node` is the id of one."""
    among: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None


ROUTES: Final = ("retry_target", "fallback_retry_target", "fallback")
"""Attributes of nodes and graphs that name the node to go to if something failed."""
BUDGET: Final = "budget."
"""What attributes of the graph begin with that say how much a run may spend: `"budget.usd"`."""
CHILD: Final = ("stack.child_dotfile", "child_dotfile", "pipeline")
"""Attributes that name the file of an inner pipeline."""
JOIN_POLICIES: Final = ("wait_all", "first_success", "quorum", "k_of_n")
TIMEOUT_ACTIONS: Final = ("first", "fail", "skip")
RETRY_PRESETS: Final = ("none", "standard", "linear", "exponential", "aggressive", "patient")
FIDELITIES: Final = (*MODES, "summary")

_TEXT: Final = AttributeRule()
_FLAG: Final = AttributeRule("flag")
_COUNT: Final = AttributeRule("integer", least=0)
_SOME: Final = AttributeRule("integer", least=1)
_SPAN: Final = AttributeRule("duration")
_NODE: Final = AttributeRule("node")

_MODEL: Final = {
    **dict.fromkeys(("llm_model", "llm_provider", "reasoning_effort", "model"), _TEXT),
    "max_tokens": _SOME,
    "temperature": AttributeRule("number", least=0),
}
_MANAGER: Final = {
    **dict.fromkeys((*CHILD, "stack.child_workdir"), _TEXT),
    **dict.fromkeys(("manager.stop_condition", "manager.actions"), _TEXT),
    "manager.poll_interval": _SPAN,
    "manager.max_cycles": _SOME,
    "stack.child_autostart": _FLAG,
}
GRAPH_ATTRIBUTES: Final[Mapping[str, AttributeRule]] = {
    **dict.fromkeys(("goal", "label", "title", "version", "dialect", "model_stylesheet"), _TEXT),
    **dict.fromkeys(("default_fidelity", "thread_id", "fidelity"), _TEXT),
    **dict.fromkeys(("default_max_retries", "default_max_retry", "default_max_redirects"), _COUNT),
    **dict.fromkeys(("retry_target", "fallback_retry_target", "fallback"), _NODE),
    "default_timeout": _SPAN,
    **dict.fromkeys(("tool_hooks.pre", "tool_hooks.post"), _TEXT),
    **_MANAGER,
}
NODE_ATTRIBUTES: Final[Mapping[str, AttributeRule]] = {
    **dict.fromkeys(("shape", "type", "label", "prompt", "goal", "class", "fidelity", "thread_id"), _TEXT),
    **dict.fromkeys(("tool_command", "human.default_choice", "tool_hooks.pre", "tool_hooks.post"), _TEXT),
    **dict.fromkeys(("goal_gate", "allow_partial", "auto_status", "expensive", "destructive"), _FLAG),
    **dict.fromkeys(("max_retries", "max_redirects"), _COUNT),
    **dict.fromkeys(("question_type", "human.type", "notify", "simulate"), _TEXT),
    **dict.fromkeys(("retry_backoff", "retry_policy"), AttributeRule("word", RETRY_PRESETS)),
    "retry_jitter": AttributeRule("number", least=0, most=1),
    **dict.fromkeys(("retry_target", "fallback_retry_target"), _NODE),
    "timeout": _SPAN,
    "timeout_action": AttributeRule("word", TIMEOUT_ACTIONS),
    "join_policy": AttributeRule("word", JOIN_POLICIES),
    **dict.fromkeys(("k", "max_parallel"), _SOME),
    **_MODEL,
    **_MANAGER,
}
EDGE_ATTRIBUTES: Final[Mapping[str, AttributeRule]] = {
    **dict.fromkeys(("label", "condition", "fidelity", "thread_id", "key"), _TEXT),
    "weight": AttributeRule("number"),
    "loop_restart": _FLAG,
}

_GRAPHVIZ: Final = """
_background area arrowhead arrowsize arrowtail bb bgcolor center charset class cluster clusterrank color
colorscheme comment compound concentrate constraint damping decorate defaultdist dim dimen dir
diredgeconstraints distortion dpi edgehref edgetarget edgetooltip edgeurl epsilon esep fillcolor
fixedsize fontcolor fontname fontnames fontpath fontsize forcelabels gradientangle group head_lp headclip
headhref headlabel headport headtarget headtooltip headurl height href id image imagepath imagepos
imagescale inputscale k label label_scheme labelangle labeldistance labelfloat labelfontcolor
labelfontname labelfontsize labelhref labeljust labelloc labeltarget labeltooltip labelurl landscape
layer layerlistsep layers layerselect layersep layout len levels levelsgap lhead lheight linelength lp
ltail lwidth margin maxiter mclimit mindist minlen mode model newrank nodesep nojustify normalize
notranslate nslimit nslimit1 oneblock ordering orientation outputorder overlap overlap_scaling
overlap_shrink pack packmode pad page pagedir pencolor penwidth peripheries pin pos quadtree quantum
radius rank rankdir ranksep ratio rects regular remincross repulsiveforce resolution root rotate rotation
samehead sametail samplepoints scale searchsize sep shape shapefile showboxes sides size skew smoothing
sortv splines start style stylesheet tail_lp tailclip tailhref taillabel tailport tailtarget tailtooltip
tailurl target tbbalance tooltip truecolor url vertices viewport voro_margin weight width xdotversion
xlabel xlp z
"""
GRAPHVIZ: Final = frozenset(_GRAPHVIZ.split())
"""In lower case."""


def value_of(attributes: Attributes, key: str, wanted: AttributeRule) -> Any:
    """Return an attribute as what it is meant to be, or raise `DotError` at its place."""
    match wanted.reads:
        case "integer":
            return attributes.integer(key, None)
        case "number":
            return attributes.number(key, None)
        case "flag":
            return attributes.flag(key, None)
        case "duration":
            return attributes.duration(key, None)
        case "word":
            return attributes.word(key, None, among=wanted.among)
    return attributes.text(key, None)
