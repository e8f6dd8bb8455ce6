"""From words to flows, hosts, runs and inputs."""
