-- Returns the row of the wait that a token belongs to. ARGV: hash of the token.
local wait_id = redis.call('HGET', P .. 'tokens', ARGV[2])
return wait_id and redis.call('HGETALL', wait_of(wait_id)) or {}
