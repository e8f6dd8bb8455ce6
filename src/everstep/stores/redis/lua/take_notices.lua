-- Takes notices that are due, for some notifiers; returns them. ARGV: hold, how many, run or '', notifiers.
local now, hold, most, wanted, found = clock(), tonumber(ARGV[2]), tonumber(ARGV[3]), {}, {}
for k = 5, #ARGV do
  wanted[ARGV[k]] = true
end

local function take(number)
  local key = P .. 'notice:' .. number
  local f = redis.call('HMGET', key, 'due_at', 'notifier')
  if f[1] and tonumber(f[1]) <= tonumber(now) and wanted[f[2]] then
    local due = whole(tonumber(now) + hold)
    redis.call('HINCRBY', key, 'tries', 1)
    redis.call('HSET', key, 'due_at', due)
    found[#found + 1] = number
  end
end

if ARGV[4] ~= '' then
  for _, number in ipairs(redis.call('ZRANGE', P .. 'notices:run:' .. ARGV[4], 0, -1)) do
    if #found < most then
      take(number)
    end
  end
else
  local first, page = 0, {}
  repeat
    page = redis.call('ZRANGEBYSCORE', P .. 'notices:due', '-inf', now, 'LIMIT', first, 1000)
    for _, number in ipairs(page) do
      if #found < most then
        take(number)
      end
    end
    first = first + #page
  until #found >= most or #page < 1000
end
local rows = {}
for k, number in ipairs(found) do
  redis.call('ZADD', P .. 'notices:due', redis.call('HGET', P .. 'notice:' .. number, 'due_at'), number)
  rows[k] = redis.call('HGETALL', P .. 'notice:' .. number)
end
return rows
