-- Returns what is left of an erased run. ARGV: run.
return redis.call('HGETALL', tomb_of(ARGV[2]))
