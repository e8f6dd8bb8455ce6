-- Returns the structures of flows; nothing for one that is not known. ARGV: hashes.
return redis.call('HMGET', P .. 'structures', unpack(ARGV, 2))
