-- Returns the time, the row of a run, and whether another goes on from it. ARGV: run.
return { clock(), redis.call('HGETALL', row_of(ARGV[2])), redis.call('EXISTS', P .. 'forks:' .. ARGV[2]) }
