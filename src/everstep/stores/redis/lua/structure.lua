-- Returns the structure of a flow. ARGV: hash.
return redis.call('HGET', P .. 'structures', ARGV[2])
