-- Returns rows of waits, the oldest first.
-- ARGV: index, limit, the wait after which to begin, wanted run, flow, kind and status ('=' before a name).
local oldest = '-inf'
if ARGV[4] ~= '' then
  oldest = redis.call('HGET', wait_of(string.sub(ARGV[4], 2)), 'n')
  if not oldest then
    return {}
  end
  oldest = '(' .. oldest
end
local limit, rows, seen, PAGE = tonumber(ARGV[3]), {}, 0, 1000
while limit > 0 do
  local page = redis.call('ZRANGEBYSCORE', P .. ARGV[2], oldest, '+inf', 'LIMIT', seen, PAGE)
  for _, wait_id in ipairs(page) do
    local f = redis.call('HMGET', wait_of(wait_id), 'run', 'flow', 'kind', 'status')
    if (ARGV[5] == '' or ARGV[5] == '=' .. f[1]) and (ARGV[6] == '' or ARGV[6] == '=' .. f[2])
      and (ARGV[7] == '' or ARGV[7] == '=' .. f[3]) and (ARGV[8] == '' or ARGV[8] == f[4]) then
      rows[#rows + 1] = redis.call('HGETALL', wait_of(wait_id))
      if #rows == limit then
        return rows
      end
    end
  end
  if #page < PAGE then
    break
  end
  seen = seen + PAGE
end
return rows
