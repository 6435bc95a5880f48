%% Answers questions of the tests inside the broker, one line each, on PORT. The broker runs it when its own start is complete.
%%
%% total QUEUE   messages of a queue in the default vhost, unacknowledged ones included
%% leaderless    quorum queues without a leader, each with the state of its member here, separated by tabs
%% elect         restarts the members of those queues that do not run, and triggers an election in each
%% sync          writes to the disk which quorum queues there are
%% stop QUEUE    stops the member of a quorum queue in the default vhost
%% start QUEUE   starts it again
spawn(fun() ->
    {ok, Listener} = gen_tcp:listen(PORT, [{ip, {127, 0, 0, 1}}, list, {packet, line}, {active, false}, {reuseaddr, true}]),
    Lookup = fun(Name) -> rabbit_amqqueue:lookup({resource, <<"/">>, queue, list_to_binary(Name)}) end,
    Total = fun(Name) ->
        case Lookup(Name) of
            {ok, Queue} ->
                case amqqueue:get_type(Queue) of
                    rabbit_quorum_queue ->
                        {ok, {_, Count}, _} = ra:local_query(amqqueue:get_pid(Queue), fun rabbit_fifo:query_messages_total/1),
                        Count;
                    _ ->
                        [{messages, Count}] = rabbit_amqqueue:info(Queue, [messages]),
                        Count
                end;
            _ -> 0
        end
    end,
    Member = fun(Name) -> {ok, Queue} = Lookup(Name), amqqueue:get_pid(Queue) end,
    State = fun({Id, _}) ->
        case ets:lookup(ra_state, Id) of
            [{_, State}] -> State;
            [] -> stopped
        end
    end,
    Leaderless = fun() ->
        Quorum = [Queue || Queue <- rabbit_amqqueue:list(), amqqueue:get_type(Queue) =:= rabbit_quorum_queue],
        [{Queue, Now} || Queue <- Quorum, Now <- [State(amqqueue:get_pid(Queue))], Now =/= leader]
    end,
    Elect = fun({Queue, Now}) ->
        Id = amqqueue:get_pid(Queue),
        Now =:= stopped andalso (catch ra:restart_server(quorum_queues, Id)),
        catch ra:trigger_election(Id)
    end,
    Describe = fun({Queue, Now}) ->
        {resource, _, queue, Name} = amqqueue:get_name(Queue),
        io_lib:format("~ts (~p)", [Name, Now])
    end,
    Answer = fun
        ("total " ++ Name) -> io_lib:format("~p", [Total(Name)]);
        ("leaderless") -> lists:join("\t", [Describe(One) || One <- Leaderless()]);
        ("elect") -> lists:foreach(Elect, Leaderless()), "ok";
        ("sync") -> [ok = dets:sync(Table) || Table <- dets:all()], "ok";
        ("stop " ++ Name) -> ok = ra:stop_server(quorum_queues, Member(Name)), "ok";
        ("start " ++ Name) -> ok = ra:restart_server(quorum_queues, Member(Name)), "ok"
    end,
    Serve = fun Serve(Socket) ->
        case gen_tcp:recv(Socket, 0) of
            {ok, Line} ->
                gen_tcp:send(Socket, [Answer(string:trim(Line)), "\n"]),
                Serve(Socket);
            _ -> ok
        end
    end,
    Accept = fun Accept() ->
        {ok, Socket} = gen_tcp:accept(Listener),
        gen_tcp:controlling_process(Socket, spawn(fun() -> Serve(Socket) end)),
        Accept()
    end,
    Accept()
end).
