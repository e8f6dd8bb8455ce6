-- Before a claim with limits: it was judged on what others have not changed since. Takes its last arguments: how often
-- such claims had been made, keys and what is to be kept under them, and how many arguments that is.
local within = {}
for k = tonumber(table.remove(ARGV)), 1, -1 do
  within[k] = table.remove(ARGV)
end
if (redis.call('GET', P .. 'limits:claims') or '0') ~= within[1] then
  return false
end
redis.call('INCR', P .. 'limits:claims')
for k = 2, #within, 2 do
  redis.call('HSET', P .. 'limits', within[k], within[k + 1])
end

