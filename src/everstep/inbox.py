"""How a flow takes in what is sent to its runs: `Flow(..., inbox={"messages": append})`."""

from typing import Final

from everstep.model.waits import Reducer

append: Final = Reducer.APPEND
replace: Final = Reducer.REPLACE
add: Final = Reducer.ADD

__all__ = ["Reducer", "add", "append", "replace"]
