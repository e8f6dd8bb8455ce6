"""Types for annotations, the words that options take, and classes that extend a flow or a host.

What the calls return that flows are written with is here, too.
"""

from everstep.codec.chain import Codec
from everstep.graph.author.channel import Channel, ChannelLock, ChannelOp
from everstep.graph.author.context import Asked, Spent
from everstep.graph.author.node import Gate, MakesGate
from everstep.graph.author.node_options import DeterminismName, EffectsName, PersistName
from everstep.graph.author.profiles import Profile, Registry
from everstep.graph.author.subflow import Subflow
from everstep.graph.author.wiring import Chain, Group, Policy
from everstep.graph.check.validate import Offers, Rule
from everstep.model.bundles import LeaveOut
from everstep.model.durability import DurabilityMode
from everstep.model.retry import RetryPreset
from everstep.ports.tracing import Tracing

__all__ = [
    "Asked",
    "Chain",
    "Channel",
    "ChannelLock",
    "ChannelOp",
    "Codec",
    "DeterminismName",
    "DurabilityMode",
    "EffectsName",
    "Gate",
    "Group",
    "LeaveOut",
    "MakesGate",
    "Offers",
    "PersistName",
    "Policy",
    "Profile",
    "Registry",
    "RetryPreset",
    "Rule",
    "Spent",
    "Subflow",
    "Tracing",
]
