-- Returns signals of a run by their numbers: those that were not taken, or the others.
-- ARGV: run, name ('=' before one), number to go on from, how many, 1 for those that were taken.
local n = redis.call('HGET', row_of(ARGV[2]), 'n')
local name = ARGV[3] ~= '' and string.sub(ARGV[3], 2)
local found, most = {}, tonumber(ARGV[5])
if not n then
  return found
end

if ARGV[6] == '1' then
  for number = tonumber(ARGV[4]) + 1, redis.call('HLEN', inbox_of(n) .. ':ids') do
    local key = signal_of(n, number)
    if #found == most then
      break
    elseif not redis.call('ZSCORE', inbox_of(n), number) and (not name or redis.call('HGET', key, 'name') == name) then
      found[#found + 1] = redis.call('HGETALL', key)
    end
  end
else
  local key = name and untaken_of(n, name) or inbox_of(n)
  for _, number in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. ARGV[4], '+inf', 'LIMIT', 0, most)) do
    found[#found + 1] = redis.call('HGETALL', signal_of(n, number))
  end
end
return found
