"""What a flow is: nodes, gates, edges, and the checks made when it is built. Runs nothing."""
