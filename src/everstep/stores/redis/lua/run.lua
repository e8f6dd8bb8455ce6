-- Returns the time and the row of a run. ARGV: run.
return { clock(), redis.call('HGETALL', row_of(ARGV[2])) }
