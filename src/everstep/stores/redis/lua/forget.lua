-- Removes tombstones and returns how many were there. ARGV: runs.
local gone = 0
for k = 2, #ARGV do
  local flow = redis.call('HGET', tomb_of(ARGV[k]), 'flow')
  if flow then
    redis.call('DEL', tomb_of(ARGV[k]))
    redis.call('ZREM', P .. 'tombstones', ARGV[k])
    redis.call('ZREM', P .. 'tombstones:flow:' .. flow, ARGV[k])
    gone = gone + 1
  end
end
return gone
