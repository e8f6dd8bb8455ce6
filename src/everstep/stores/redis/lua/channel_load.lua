-- Returns the channel of a run, and what was staged for it. ARGV: run.
return { redis.call('HGETALL', P .. 'channel:' .. ARGV[2]), redis.call('HGETALL', P .. 'staged:' .. ARGV[2]) }
