-- Changes fields of an open wait and returns its row. ARGV: wait, a row of the audit log or '', then names and values; no
-- value removes it. The name 'was', which comes first, has the details that it must still have.
local key, first = wait_of(ARGV[2]), 4
if ARGV[4] == 'was' then
  first = 6
  if ARGV[5] ~= '=' .. (redis.call('HGET', key, 'details') or '') then
    return redis.call('HGETALL', key)
  end
end
local f = redis.call('HMGET', key, 'status', 'token', 'run')
if f[1] == 'open' then
  tell(ARGV[3])
end
if f[1] == 'open' and #ARGV > 3 then
  for k = first, #ARGV, 2 do
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
