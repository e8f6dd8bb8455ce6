-- Removes the oldest rows of the audit log from before a time, and returns how many. ARGV: time, how many at most.
local gone = 0
for _, number in ipairs(redis.call('ZRANGE', P .. 'audit', 0, tonumber(ARGV[3]) - 1)) do
  local at, told = string.match(redis.call('HGET', P .. 'audit:rows', number), '^(%d+) (.*)$')
  if tonumber(at) < tonumber(ARGV[2]) then
    local row = cjson.decode(told)
    redis.call('HDEL', P .. 'audit:rows', number)
    redis.call('HDEL', P .. 'audit:ids', row[1])
    redis.call('ZREM', P .. 'audit', number)
    if row[4] ~= cjson.null then
      redis.call('ZREM', P .. 'audit:run:' .. row[4], number)
    end
    gone = gone + 1
  end
end
return gone
