"""From a flow to the plan that a run is driven by."""
