-- Changes fields of an open wait and returns its row. ARGV: wait, a row of the audit log or '', then names and values; no
-- value removes it.
local key = wait_of(ARGV[2])
local f = redis.call('HMGET', key, 'status', 'token', 'run')
if f[1] == 'open' then
  tell(ARGV[3])
end
if f[1] == 'open' and #ARGV > 3 then
  for k = 4, #ARGV, 2 do
    if ARGV[k + 1] == '' then
      redis.call('HDEL', key, ARGV[k])
    else
      redis.call('HSET', key, ARGV[k], string.sub(ARGV[k + 1], 2))
    end
  end
  local token = redis.call('HGET', key, 'token')
  if token ~= f[2] then
    if f[2] then
      redis.call('HDEL', P .. 'tokens', f[2])
    end
    if token then
      redis.call('HSET', P .. 'tokens', token, ARGV[2])
    end
  end
  place(ARGV[2], redis.call('HGET', row_of(f[3]), 'status'))
  reckon(f[3])
  announce()
end
return redis.call('HGETALL', key)
