-- Keeps an event for as long as it says, once, and returns the topics of open waits for its name, one of each shape.
-- ARGV: id, name, value, prefix of topics, how long it is kept or 0, a row of the audit log or '',
-- then field and hash of each field.
local id, name, value, prefix, span = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local now = clock()
tell(ARGV[7])
if span > 0 then
  local event = event_of(name, id)
  local key = P .. 'event:' .. event
  local over = redis.call('ZRANGEBYSCORE', P .. 'events', '-inf', now, 'LIMIT', 0, 100)
  local ended = redis.call('HGET', key, 'ends')
  if ended and tonumber(ended) <= tonumber(now) then
    over[#over + 1] = event
  end
  for _, old in ipairs(over) do
    local of = redis.call('HGET', P .. 'event:' .. old, 'name')
    redis.call('ZREM', P .. 'events', old)
    redis.call('ZREM', P .. 'events:' .. (of or ''), old)
    redis.call('DEL', P .. 'event:' .. old)
  end
  if redis.call('EXISTS', key) == 0 then
    local ends = whole(tonumber(now) + span)
    redis.call('HSET', key, 'name', name, 'value', value, 'ends', ends)
    for at = 8, #ARGV, 2 do
      redis.call('HSET', key, 'field:' .. ARGV[at], ARGV[at + 1])
    end
    redis.call('ZADD', P .. 'events', ends, event)
    redis.call('ZADD', P .. 'events:' .. name, redis.call('INCR', P .. 'events:number'), event)
  end
end
local found, after = {}, '[' .. prefix
while true do
  local topic = redis.call('ZRANGEBYLEX', P .. 'topics:' .. prefix, after, '+', 'LIMIT', 0, 1)[1]
  if not topic then
    return found
  end
  found[#found + 1] = topic
  -- Behind all of this shape: the hashes follow the last colon.
  after = '[' .. string.match(topic, '^(.*):') .. ';'
end
